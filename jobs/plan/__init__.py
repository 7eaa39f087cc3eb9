"""What a job will do: cuts, ranges, picture, encoder, devices."""
