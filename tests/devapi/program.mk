$(eval $(call program,berth-devapi,tests/devapi,base,-lmicrohttpd -ljansson))
$(eval $(call program,berth-devapi-load,bench/devapi-load,base,))
