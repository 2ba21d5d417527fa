//! The price book: what machines and their traffic cost a month.

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

/// Bytes of a GB and GB of a TB are powers of 1,000.
const GB_OF_TB: f64 = 1e3;

/// Prices of one day.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceBook {
    /// The day, as in `2026-10-28`.
    pub date: String,
    /// The currency of every amount but those of traffic.
    pub currency: String,
    /// Side by side in every table.
    pub providers: Vec<Provider>,
}

/// One machine of one provider, of which any number is rented.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its name in tables.
    pub name: String,
    /// The machine as its provider names it.
    pub machine: String,
    /// Its virtual cores.
    pub vcpus: f64,
    /// Its memory in GiB.
    pub memory_gib: f64,
    /// The most that it may send to the internet; absent if the provider states none.
    pub network_mbit_per_s: Option<f64>,
    /// The price of a month.
    pub per_month: f64,
    /// Outgoing TB of a month without a price, however many machines.
    #[serde(default)]
    pub free_tb: f64,
    /// Outgoing TB of a month that come with each machine.
    #[serde(default)]
    pub included_tb_per_machine: f64,
    /// Units of the traffic's currency that make one unit of the book's.
    #[serde(default = "same")]
    pub traffic_per_currency: f64,
    /// Prices of outgoing traffic, the last without an end.
    pub traffic: Vec<Tier>,
    /// Where each price stands, with its date.
    pub sources: Vec<String>,
}

fn same() -> f64 {
    1.0
}

/// Traffic of one price.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tier {
    /// Where it ends, in TB of a month.
    pub up_to_tb: Option<f64>,
    /// The price of a GB.
    pub per_gb: f64,
}

impl PriceBook {
    /// Checks that every price and size is stated and plausible.
    ///
    /// # Errors
    /// Names the provider and the wrong entry.
    pub fn check(&self) -> Result<()> {
        ensure!(!self.providers.is_empty(), "the price book has no provider");
        for provider in &self.providers {
            let Provider { name, vcpus, memory_gib, traffic, .. } = provider;
            let sizes = [
                Some(*vcpus),
                Some(*memory_gib),
                provider.network_mbit_per_s,
                Some(provider.traffic_per_currency),
            ];
            let sizes = sizes.into_iter().flatten();
            ensure!(
                sizes.clone().all(|size| size.is_finite() && size > 0.0),
                "{name}: vcpus, memory_gib, network_mbit_per_s and traffic_per_currency are above 0"
            );
            let prices = [provider.per_month, provider.free_tb, provider.included_tb_per_machine];
            let prices = prices.into_iter().chain(traffic.iter().map(|tier| tier.per_gb));
            ensure!(
                prices.clone().all(|price| price.is_finite() && price >= 0.0),
                "{name}: prices and free traffic are 0 or more"
            );
            let ends: Vec<f64> = traffic.iter().map(|tier| tier.up_to_tb.unwrap_or(f64::INFINITY)).collect();
            let ascend = ends.windows(2).all(|pair| pair[0] < pair[1]) && ends.iter().all(|end| *end > 0.0);
            ensure!(
                ascend && ends.last() == Some(&f64::INFINITY),
                "{name}: up_to_tb of traffic ascends, and the last price has none"
            );
            ensure!(!provider.sources.is_empty(), "{name}: sources say where its prices stand");
        }
        Ok(())
    }
}

impl Provider {
    /// The price of `tb` outgoing TB per month from `machines` machines, in the book's currency.
    pub(crate) fn traffic_price(&self, tb: f64, machines: f64) -> f64 {
        let free = self.free_tb + self.included_tb_per_machine * machines;
        let (mut from, mut price) = (0.0_f64, 0.0);
        for tier in &self.traffic {
            let to = tier.up_to_tb.unwrap_or(f64::INFINITY).min(tb);
            price += (to - from.max(free)).max(0.0) * GB_OF_TB * tier.per_gb;
            from = to;
        }
        price / self.traffic_per_currency
    }
}
