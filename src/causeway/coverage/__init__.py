"""Know before you start what a model needs: which operators it calls, and the rung of each on a
vendor's chip, without the chip.

The answer is not a guess at the ladder: the model runs on a chip on paper (`paper`), a vendor whose
table says what the chip says and whose kernels do nothing, and the ladder itself decides and counts
(`child`, `record`). `model` holds what came, `page` and `export` show it.
"""
