//! Workers and their clients (P1 to P6).
