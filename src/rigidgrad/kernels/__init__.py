"""Loops over arrays whose bodies are Programs or products of small matrices: the floor between
Programs and targets.
"""
