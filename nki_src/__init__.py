"""NKI device code: one kernel per file, nothing imported here so that limits can be read where nki is absent."""
