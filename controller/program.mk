$(eval $(call program,berth-controller,controller,observe kube base,))
