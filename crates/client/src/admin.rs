//! Buckets and streams: made, looked at, changed, deleted and listed.

use std::future::Future;

use futures_core::Stream;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use http::Method;
use wire::bucket::{Bucket, BucketPatch, BucketSpec};
use wire::config::ConfigPatch;
use wire::limits::LIST_PAGE_MAX;
use wire::message::{
    BucketAnswer, BucketCreate, BucketDelete, BucketEnsure, BucketGet, BucketList, BucketPage, BucketUpdate, Done,
    Message as _, StarAnswer, StarGet, StreamAnswer, StreamCreate, StreamDelete, StreamGet, StreamInfo, StreamList,
    StreamPage, StreamReconfigure,
};
use wire::names::{Address, BucketName};
use wire::reason::Reason;
use wire::star_detail::StarDetail;

use crate::client::{Again, Client};
use crate::error::{Error, Result};
use crate::http::wire_only;
use crate::link::framed;

/// Buckets.
impl Client {
    /// Creates a bucket; a second create with the same non-empty `creation_token` answers the one that is there.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::{BucketName, BucketSpec, Class, ConfigPatch};
    ///
    /// let bucket = client
    ///     .create_bucket(BucketSpec {
    ///         create_stream_on_append: true,
    ///         defaults: ConfigPatch { class: Some(Class::Express), ..ConfigPatch::default() },
    ///         ..BucketSpec::named(BucketName::new("demo")?)
    ///     })
    ///     .await?;
    /// println!("{} holds {} streams by default", bucket.name, bucket.defaults.class);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `already_exists`; `invalid` when the defaults contradict each other.
    pub async fn create_bucket(&self, spec: BucketSpec) -> Result<Bucket> {
        if let Some(http) = self.http() {
            return http.make_bucket(Method::POST, Again::Never, &spec).await;
        }
        let answer: BucketAnswer = self.ask(&BucketCreate { spec }, Again::Never).await?;
        Ok(answer.bucket)
    }

    /// Creates a bucket, or answers the one that is there as it is.
    ///
    /// # Errors
    /// `invalid` when the defaults contradict each other.
    pub async fn ensure_bucket(&self, spec: BucketSpec) -> Result<Bucket> {
        if let Some(http) = self.http() {
            return http.make_bucket(Method::PUT, Again::Idempotent, &spec).await;
        }
        let answer: BucketAnswer = self.ask(&BucketEnsure { spec }, Again::Idempotent).await?;
        Ok(answer.bucket)
    }

    /// Sets what is set in `patch`: flags act at once, defaults on streams made from then on.
    ///
    /// # Errors
    /// `not_found`; `invalid` when the merged defaults contradict each other.
    pub async fn update_bucket(&self, name: &BucketName, patch: BucketPatch) -> Result<Bucket> {
        if let Some(http) = self.http() {
            return http.update_bucket(name, patch).await;
        }
        let request = BucketUpdate { name: name.clone(), patch };
        let answer: BucketAnswer = self.ask(&request, Again::Never).await?;
        Ok(answer.bucket)
    }

    /// Looks at a bucket.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn get_bucket(&self, name: &BucketName) -> Result<Bucket> {
        if let Some(http) = self.http() {
            return http.get_bucket(name).await;
        }
        let answer: BucketAnswer = self.ask(&BucketGet { name: name.clone() }, Again::Asks).await?;
        Ok(answer.bucket)
    }

    /// Deletes a bucket that holds no stream.
    ///
    /// # Errors
    /// `not_found`, `bucket_not_empty`.
    pub async fn delete_bucket(&self, name: &BucketName) -> Result<()> {
        if let Some(http) = self.http() {
            return http.delete_bucket(name).await;
        }
        let Done {} = self.ask(&BucketDelete { name: name.clone() }, Again::Never).await?;
        Ok(())
    }

    /// A page of buckets in the order of their names, from after `after` (empty: from the first). A limit of 0 is the
    /// default of 100; more than 1 000 is clamped. The page's `next` is where the next one starts after, empty at the end.
    ///
    /// # Errors
    /// Those of reaching a star.
    pub async fn list_buckets(&self, after: &str, limit: u32) -> Result<BucketPage> {
        if let Some(http) = self.http() {
            return http.list_buckets(after, limit).await;
        }
        self.ask(&BucketList { after: after.to_owned(), limit }, Again::Asks).await
    }

    /// All buckets in the order of their names, a page at a time as they are taken.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use futures_util::TryStreamExt;
    ///
    /// let mut buckets = std::pin::pin!(client.buckets());
    /// while let Some(bucket) = buckets.try_next().await? {
    ///     println!("{}", bucket.name);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn buckets(&self) -> impl Stream<Item = Result<Bucket>> + Send + use<> {
        let client = self.clone();
        rows(String::new(), move |after| {
            let client = client.clone();
            async move {
                let page = client.list_buckets(&after, LIST_PAGE_MAX).await?;
                let next = (!page.next.is_empty()).then_some(page.next);
                Ok((page.buckets, next))
            }
        })
    }
}

/// Streams.
impl Client {
    /// Creates a stream; what is absent or zero in `config` is filled from the bucket's defaults.
    ///
    /// # Errors
    /// `already_exists`; `not_found` when the bucket is not there; `invalid` when the merged configuration contradicts
    /// itself; `failed_precondition` for a class that the star can't write.
    pub async fn create_stream(&self, address: &Address, config: ConfigPatch) -> Result<StreamInfo> {
        if let Some(http) = self.http() {
            return http.create_stream(address, config).await;
        }
        let request = StreamCreate { address: address.clone(), config };
        let answer: StreamAnswer = self.ask(&request, Again::Never).await?;
        Ok(answer.stream)
    }

    /// Looks at a stream.
    ///
    /// # Errors
    /// `not_found`.
    pub async fn get_stream(&self, address: &Address) -> Result<StreamInfo> {
        if let Some(http) = self.http() {
            return http.get_stream(address).await;
        }
        let request = StreamGet { address: address.clone() };
        let answer: StreamAnswer = self.ask(&request, Again::Asks).await?;
        Ok(answer.stream)
    }

    /// Sets what is set in `config`: absent is untouched, zero is zero. Once it answers, every later append honours it;
    /// producers that are open reconnect by themselves.
    ///
    /// ```no_run
    /// # async fn f(client: client::Client) -> client::Result<()> {
    /// use client::ConfigPatch;
    ///
    /// let kept_for_a_day = ConfigPatch { retention_max_age_ms: Some(86_400_000), ..ConfigPatch::default() };
    /// client.reconfigure_stream(&"nova://demo/orders".parse()?, kept_for_a_day).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `not_found`; `invalid` when the merged configuration contradicts itself; `failed_precondition` for a class that
    /// the star can't write, before anything changes.
    pub async fn reconfigure_stream(&self, address: &Address, config: ConfigPatch) -> Result<StreamInfo> {
        if let Some(http) = self.http() {
            return http.reconfigure_stream(address, config).await;
        }
        let request = StreamReconfigure { address: address.clone(), config };
        let answer: StreamAnswer = self.ask(&request, Again::Never).await?;
        Ok(answer.stream)
    }

    /// Deletes a stream for every caller at once; deleting what is not there succeeds.
    ///
    /// # Errors
    /// Those of reaching a star.
    pub async fn delete_stream(&self, address: &Address) -> Result<()> {
        if let Some(http) = self.http() {
            return http.delete_stream(address).await;
        }
        let Done {} = self.ask(&StreamDelete { address: address.clone() }, Again::Never).await?;
        Ok(())
    }

    /// A page of a bucket's streams in the order of their keys. `after` is the `next` of the page before, empty for the
    /// first; a limit of 0 is the default of 100, more than 1 000 is clamped.
    ///
    /// # Errors
    /// `not_found` when the bucket is not there.
    pub async fn list_streams(&self, bucket: &BucketName, after: &[u8], limit: u32) -> Result<StreamPage> {
        if let Some(http) = self.http() {
            return http.list_streams(bucket, after, limit).await;
        }
        let request = StreamList { bucket: bucket.clone(), after: after.to_vec(), limit };
        self.ask(&request, Again::Asks).await
    }

    /// All streams of a bucket in the order of their keys, a page at a time as they are taken.
    pub fn streams(&self, bucket: &BucketName) -> impl Stream<Item = Result<StreamInfo>> + Send + use<> {
        let (client, bucket) = (self.clone(), bucket.clone());
        rows(Vec::new(), move |after| {
            let (client, bucket) = (client.clone(), bucket.clone());
            async move {
                let page = client.list_streams(&bucket, &after, LIST_PAGE_MAX).await?;
                let next = (!page.next.is_empty()).then_some(page.next);
                Ok((page.streams, next))
            }
        })
    }

    /// What the star that answers first is, and what it counts.
    ///
    /// # Errors
    /// Those of reaching a star; `wire_only` over HTTP.
    pub async fn star(&self) -> Result<StarAnswer> {
        Ok(self.star_in_detail().await?.0)
    }

    /// The same, and what the star tells of itself besides: where the time goes of what it is asked, and which streams weigh most.
    /// Nothing of that from a star that is too old to tell.
    ///
    /// # Errors
    /// Those of reaching a star; `wire_only` over HTTP.
    pub async fn star_in_detail(&self) -> Result<(StarAnswer, StarDetail)> {
        if self.http().is_some() {
            return Err(wire_only("what a star counts"));
        }
        let answer = self.call(Again::Asks, StarAnswer::KIND, |correlation| framed(correlation, &StarGet {})).await?;
        let broken =
            |why: String| Error::harmless(Reason::Internal, format!("the star's answer doesn't validate: {why}"));
        let star = StarAnswer::get(&answer.head).map_err(|refusal| broken(refusal.message))?;
        let detail = StarDetail::from_bytes(&answer.payload).map_err(|error| broken(error.to_string()))?;
        Ok((star, detail))
    }
}

/// The rows of all pages: `page` answers those after a cursor, and the cursor of the next page if there is one.
fn rows<C, T, P, F>(first: C, mut page: P) -> impl Stream<Item = Result<T>>
where
    P: FnMut(C) -> F,
    F: Future<Output = Result<(Vec<T>, Option<C>)>>,
{
    let pages = stream::try_unfold(Some(first), move |after| {
        let page = after.map(&mut page);
        async move {
            match page {
                Some(page) => page.await.map(Some),
                None => Ok(None),
            }
        }
    });
    pages.map_ok(|rows| stream::iter(rows).map(Ok)).try_flatten()
}
