# some files of drivers/common, not all: the others belong to CSI, which the holder does without
HOLDER_SHARED := $(patsubst %,$(O)/drivers/common/%.o,holder_packet mount mount_options)
$(eval $(call program,berth-holder,drivers/holder,base,$(HOLDER_SHARED) $(O)/libbase.a -ljansson -lcrypto))
$(O)/berth-holder: $(HOLDER_SHARED)
$(patsubst %.c,$(O)/%,$(wildcard tests/unit/holder/test_*.c)): | $(HOLDER_SHARED)
