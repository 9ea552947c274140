"""Exported records and policies come in; what each policy would have done goes out as text or
JSON.
"""
