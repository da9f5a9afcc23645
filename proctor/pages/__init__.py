"""HTML pages: templates, one stylesheet, charts. The reports and the live view share them."""
