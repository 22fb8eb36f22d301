//! Load generators and the floors they are held against.
