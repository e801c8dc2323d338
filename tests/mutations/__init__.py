"""Does some test notice? One behaviour of the simulator at a time is changed in a copy, and its tests must fail.

python -m tests.mutations [word ...]      all mutations, or those with one of the words in their file or description
"""
