"""What people see: pages, pictures and tables of a profile and of a tuning run.

Everything opens offline. Figures are functions from plain values to a matplotlib figure; pages put them into one HTML
file as inline SVG. Nothing here measures or decides.
"""
