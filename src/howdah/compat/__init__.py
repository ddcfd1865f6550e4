"""For jobs written for others: what they have, and what it is here."""
