$(eval $(call program,berth-fuse,drivers/fuse,base,-lfuse3))
