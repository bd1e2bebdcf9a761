$(eval $(call program,fuse-posix,tests/fuse/posix,base,))
FUSE_CALL_SHARED := $(patsubst %,$(O)/drivers/common/%.o,holder_client holder_packet)
$(eval $(call program,fuse-holder-call,tests/fuse/call,base,$(FUSE_CALL_SHARED) $(O)/libbase.a -ljansson))
$(O)/fuse-holder-call: $(FUSE_CALL_SHARED)
