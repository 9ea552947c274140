"""The pods and budgets of one node come in; who is evicted next, who stays and what is in the way
go out.
"""
