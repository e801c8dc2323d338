"""Published measurements of Trainium2 against the timing model: cases.py; `python -m bench.validation` prints them."""
