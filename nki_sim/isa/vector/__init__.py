"""Vector Engine: element-wise arithmetic, copies, reductions, running totals and searches along the free dims."""
