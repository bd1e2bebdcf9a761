$(eval $(call program,csi-call,tests/csicall,csi base,-ljansson))
