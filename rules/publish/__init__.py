"""Incidents come in; what the node says goes out: verdict, sentence, labels, conditions, Events,
health object.
"""
