"""A drained node whose causes closed comes in; the test under load before its release goes out."""
