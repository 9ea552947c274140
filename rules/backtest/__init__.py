"""Records of a cluster come in; what each policy would have done with its nodes goes out."""
