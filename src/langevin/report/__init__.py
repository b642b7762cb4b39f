"""Pictures of a result, and the page that shows them: drawn with matplotlib, or with Vega in one HTML file."""
