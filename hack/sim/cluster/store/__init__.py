"""Objects as the API server keeps them: kinds, writes, patches, lists and watches."""
