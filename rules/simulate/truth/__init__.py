"""Dice and rates come in; which node breaks when, how, and for how long go out."""
