"""Jobs as people write them, read into the pods and PodGroups that their controllers would make of them."""
