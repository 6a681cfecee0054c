"""A program on the CPU and on the device, step by step: are the numbers the same?"""
