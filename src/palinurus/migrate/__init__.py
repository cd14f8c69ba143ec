"""Moving house: read the homes of other systems whole, show what would come over, and carry it."""
