// Stands for the script that npm makes, where no browser runs it.
