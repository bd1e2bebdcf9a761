$(eval $(call program,berth-provisioner,provisioner,observe kube csi base,))
