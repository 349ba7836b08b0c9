"""Hardware, step-time curve and layer statistics."""
