"""The calls the agent makes to the API server, and the objects they carry."""
