$(eval $(call program,berth-fakecsi,tests/fakecsi,csi base,-ljansson))
