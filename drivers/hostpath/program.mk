$(eval $(call program,berth-hostpath,drivers/hostpath drivers/common,observe csi base,-ljansson))
