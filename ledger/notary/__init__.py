"""The recorder as a process of its own: the service, and the clients of its socket."""
