$(eval $(call program,berth-devapi,tests/devapi,base,-lmicrohttpd -ljansson))
