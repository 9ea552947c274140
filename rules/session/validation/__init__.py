"""A node whose causes closed comes in; its test under load, the wait and its release go out."""
