"""Functions and tables that several plugins share."""
