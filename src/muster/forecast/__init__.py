"""What would happen: one cycle that is not carried out, when a gang starts, which changes would make it run, and what there is
to say about it now. Nothing here changes a cluster, and a scheduler needs nothing of it to decide."""
