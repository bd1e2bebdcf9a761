$(eval $(call program,fuse-posix,tests/fuse/posix,base,))
