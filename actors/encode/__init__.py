"""Software encoding: settings, libraries, options, sessions."""
