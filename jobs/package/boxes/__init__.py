"""The boxes of CMAF tracks: what is written into them, what they state, and the codec strings that follow."""
