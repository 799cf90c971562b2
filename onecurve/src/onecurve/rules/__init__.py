"""The rules, the findings they yield and their consequences."""
