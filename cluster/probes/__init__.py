"""What a machine can really do, and why not: probes, and the values they return."""
