$(eval $(call program,berth-hostpath,drivers/hostpath drivers/common,observe kube csi base,-ljansson))
