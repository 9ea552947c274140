"""What stands in front of an API server, simulated or real: it remembers, answers, delays, drops.

`layer.Proxy` is the one handler: it finds the rule that hits a request (`faults`), passes the
request on to its upstream and writes it down (`request_log`). The upstream is the simulated server
in the same process, or a real one over HTTP (`forward`, served by `server`). So a test sets rules
and reads requests in one way, whatever answers.
"""
