//! Schedules: how a region is divided into blocks, threads, tiles and stages. One struct a kernel
//! family; text form `family(key=value, …)`, printed and parsed here and nowhere else.
