"""Bytes of /dev/kmsg, syslog(2) or a file come in; whole records with their sequence go out."""
