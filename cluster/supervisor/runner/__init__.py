"""The supervisor's process: carries decisions out."""
