"""Text and JSON that others wrote come in; bounded, harmless values go out, or a doubt in
words.
"""
