$(eval $(call program,berth-nfs,drivers/nfs drivers/common,observe csi base,-lnfs -ljansson -lfuse3))
